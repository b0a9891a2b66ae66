"""Published collections of recorded runs: one file each, and its line here."""

from kvsim.interchange.collections.collection import Collection
from kvsim.plumbing.registry import Registry

COLLECTIONS: Registry[Collection] = Registry(
    "collection",
    {
        "blis-training": "kvsim.interchange.collections.blis_training:BlisTraining",
        "residency": "kvsim.interchange.collections.residency:Residency",
        "inferencex": "kvsim.interchange.collections.inferencex:InferenceX",
        "rate-stages": "kvsim.interchange.collections.rate_stages:RateStages",
        "all-at-once": "kvsim.interchange.collections.all_at_once:AllAtOnce",
        "observed": "kvsim.interchange.collections.observed:Observed",
    },
)
