"""The explorer: a local page that changes a scenario, simulates it and draws the results.

    address <-> ScenarioState (a scenario's tables) -> WorkerTask -> WorkerPool -> Answer -> page

The page is plotly's Dash. It asks this machine alone; what it draws is the report's.
"""
