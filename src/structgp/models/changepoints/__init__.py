"""Change points: series that start afresh at unknown places, online and in hindsight."""
