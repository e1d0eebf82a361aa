"""ALFWorld: household tasks in text, native and exact."""
