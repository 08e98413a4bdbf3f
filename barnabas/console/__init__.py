"""The web console: a client of the wire that shows a cluster in a browser. Only `barnabas console` imports it (extra `console`)."""
