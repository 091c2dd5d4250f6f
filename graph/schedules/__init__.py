"""Pipeline schedules as data: made, checked, timed and drawn without a device."""
