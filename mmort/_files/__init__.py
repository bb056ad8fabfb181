"""Files that are read and written, and their names as text: what every command and function does alike."""
