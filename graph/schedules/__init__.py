"""Pipeline schedules as data. They are generated, checked, timed and drawn without a device."""
