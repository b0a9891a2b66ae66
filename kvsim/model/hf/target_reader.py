"""Recognise the config.json of a drafter that reads hidden states of its target (EAGLE-3,
DFlash).
"""

from collections.abc import Mapping
from typing import Any

from kvsim.model.hf.keys import Keys
from kvsim.model.target_reader import DFLASH, EAGLE_3, TargetReader

# EAGLE-3 reads three layers of its target.
EAGLE_3_LAYERS = 3


def target_reader(content: Mapping[str, Any], keys: Keys) -> TargetReader | None:
    """The description of such a drafter; None for a config of another kind.

    The config is recognised by its architecture, or by the method that the speculators library
    writes.
    """
    method = _method(content)
    if method is None:
        return None
    outer = keys._replace(table={**keys.table, **content})
    own = outer.inner("eagle_config" if method == EAGLE_3 else "dflash_config")
    layers = own.get("target_layer_ids", default=None) or outer.get(
        "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids", default=None
    )
    if isinstance(layers, list):
        num_layers = len(layers)
    else:
        num_layers = EAGLE_3_LAYERS if method == EAGLE_3 else keys.integer("num_hidden_layers")
    joins = own.flag(
        "use_aux_hidden_state", default=outer.flag("use_aux_hidden_state", default=True)
    )
    size = outer.integer("target_hidden_size", default=keys.hidden)
    vocab = keys.integer("vocab_size")
    head = outer.integer("draft_vocab_size", default=vocab)
    return TargetReader(
        method,
        num_layers * size if joins else 0,
        None if method == DFLASH and head == vocab else head,
    )


def _method(content: Mapping[str, Any]) -> str | None:
    names = content.get("architectures") or ()
    said = [str(name).lower() for name in names] if isinstance(names, list) else []
    said.append(str(content.get("speculators_model_type") or ""))
    return next((each for each in (EAGLE_3, DFLASH) if any(each in name for name in said)), None)
