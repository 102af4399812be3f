"""The forms of reports. Each module has one form, `FORM`; adding a module adds a form."""
