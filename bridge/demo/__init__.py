"""The demonstration: bus, runner, jobs and answers on one machine."""
