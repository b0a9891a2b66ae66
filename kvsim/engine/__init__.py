"""The hall where requests, memory and step times meet: plan, wait, commit."""
