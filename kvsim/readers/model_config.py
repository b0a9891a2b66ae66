"""The config.json of a model, as a file or a block of a paste: its layers count before the
catalogue's.
"""

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source


class ModelConfig(Source):
    """The model's part of a server. Its keys are those of `kvsim.model`, which reads it whole."""

    rank = ASKED_FOR
    what = "a model's config.json"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognised by the keys that every such file has."""
        return source.has_keys("model_type", "architectures") or source.has_keys(
            "model_type", "num_hidden_layers"
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The config; of a model that kvsim does not know, why."""
        from kvsim.model import Model

        config = source.object()
        try:
            model = Model.from_hf(config)
        except InputError as fault:
            return Description(notes=(f"kvsim does not know the model: {fault}",))
        count = len(model.layers)
        note = f"the model of the scenario is this {config['model_type']} of {count} layers"
        return Description(model_config=config, notes=(note,))
