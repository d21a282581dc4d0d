"""Audits: what an attacker can be shown to learn. They bound a privacy loss from *below*.

May import everything of the library. Start with `likelihood_ratio`.
"""
