"""Where every sequence lies in the pool, and when: observers that write it down for the page."""
