"""An object store for a broker that waits for it for two seconds, where others wait for a minute. WORLD."""

from collections.abc import Mapping

from firnline.tiered import settings as tier_settings
from firnline.tiered.objects.storage import ObjectStorage

LIMIT_MS = 2000


class ImpatientStorage(ObjectStorage):
    """An ObjectStorage; in its process a read of the tier may take LIMIT_MS."""

    def configure(self, settings: Mapping[str, str]) -> None:
        tier_settings.STORE_TIMEOUT_MS = LIMIT_MS
        super().configure(settings)
