"""What AIPerf leaves behind."""
