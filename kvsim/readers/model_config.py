"""A model's config.json, as a file or a pasted block. Its layers take precedence over the
catalogue's.
"""

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source


class ModelConfig(Source):
    """The model part of a server's description. `kvsim.model` reads all of the file's keys."""

    rank = ASKED_FOR
    what = "a model's config.json"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by keys that every config.json has."""
        return source.has_keys("model_type", "architectures") or source.has_keys(
            "model_type", "num_hidden_layers"
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The config, and a note with the reason if kvsim does not support the model."""
        from kvsim.model import Model

        config = source.object()
        try:
            model = Model.from_hf(config)
        except InputError as fault:
            return Description(notes=(f"kvsim does not know the model: {fault}",))
        count = len(model.layers)
        note = f"the model of the scenario is this {config['model_type']} of {count} layers"
        return Description(model_config=config, notes=(note,))
