"""Running jobs: `manage.py runworkers` is a parent (parent/) and the processes it forks (child/, maintenance/).

The files beside these folders run in several of these processes, or in one that needs no folder:

* every process: config, ipc, messages, os_signals, retry;
* a child writes and the parent reads: shared_memory, batch_memory, tally;
* the parent: crash_loop, idle_queues; it asks the maintenance process through signal_sender;
* a process of its own, for probes: health_process.
"""
