"""Simulations, the `fedpriv` command line, experiments, deployment and reports.

- `api`: the Python interface behind `import fedpriv`.
- `cli`, `commands`: the command line, one file for each subject.
- `experiment`: the experiment file, and the data, model and strategy that it names.
- `run`: one run, from records to the files of a release.
- `compare`: comparisons of strategies, with intervals, findings and a report.
- `engines`: simulated parties as Flower nodes; Ray; workers with shards.
- `public`: work on public data: tuning, probing, training of protectors.
- `deploy`: a federation of real processes.
- `server_app`, `client_app`: the two ends of a Flower App.
- `figures`, `schedule_pictures`: drawings; `refusals`, `signals`, `safe_path`: errors that a
  command prints, Ctrl-C, and from where Python may import.

Imported as `fedpriv.simulations`; may import everything else. Start with `run.prepare`.
"""
