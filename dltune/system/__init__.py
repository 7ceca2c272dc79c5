"""What the machine is: the cores a job may use, what they share, what can be measured here."""
