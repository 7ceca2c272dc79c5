"""The statistics of measured times: robust, and nearly all without assumptions on their
distribution. A time's mean and median are the standard library's."""
