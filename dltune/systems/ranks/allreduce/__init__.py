"""Planning a Horovod job: cores, tensor order and bins, sleeps, knobs."""
