"""What all commands share: options, profiles, tables, names, completion, errors and exit codes. WORLD."""
