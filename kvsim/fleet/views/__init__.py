"""What routers know: texts sent before, blocks reported, counts published."""
