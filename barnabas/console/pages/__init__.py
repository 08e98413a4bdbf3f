"""The console's pages, a file each: what is asked, and the template that shows it."""
