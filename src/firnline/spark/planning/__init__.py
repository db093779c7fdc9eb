"""From the options and filters of a query to the tasks that read the tier."""
