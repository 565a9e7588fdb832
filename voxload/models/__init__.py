"""The networks of the field, as ordinary torch modules."""

from voxload.models.cosmoflow import CosmoFlow

__all__ = ["CosmoFlow"]
