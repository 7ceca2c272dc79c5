"""The kernel's performance counters (perf_event_open), with the standard library alone.

    events    an event by its name                     parse("LLC-load-misses") -> Event
    presets   which events to count here, and why      choose("auto") -> (events, sentence)
    group     events counted together, and splitting   Group(events).read(), split(events)
    ring      samples, such as page faults' addresses  Ring(event, period=1)
    rdpmc     a counter read without the kernel
    selftest  counters against work that is known

`syscall` is the system call itself, `probe` what may be opened and what its errors mean.
"""
