"""The kernel's performance counters (perf_event_open), with the standard library alone.

    events    an event by its name                     parse("LLC-load-misses") -> Event
    presets   which events to count here, and why      choose("auto") -> (events, sentence)
    counters  events counted together, and splitting   Group(events).read(), split(events)
              counters read without the kernel         UserCounter
              counters against work that is known      self_test
    ring      samples, such as page faults' addresses  Ring(event, period=1)
    access    events that can be opened here, and why others are refused

`events` also has the system call itself.
"""
