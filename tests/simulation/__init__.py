"""The simulated world: real Brokers on a loop in virtual time, a simulated network and simulated disks, all from one seed."""
