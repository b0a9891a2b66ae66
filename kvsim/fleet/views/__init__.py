"""Knowledge of routers: texts sent before, blocks reported, counts published."""
