"""Copies a segment into the tier, with the limit for what plug-ins store with it. STORE. Source: T10, T47."""

from firnline.tiered.spi import CustomMetadataTooLarge, RemoteSegment, RemoteStorage, SegmentData


def copy_segment(
    storage: RemoteStorage, limit_bytes: int, segment: RemoteSegment, data: SegmentData
) -> bytes | None:
    """Put the objects; return the custom metadata. Raises any error of the store.

    The limit concerns the custom metadata of plug-ins: a fingerprint has a bound of its own.
    """
    custom = storage.copy_segment(segment, data)
    if custom is not None and len(custom) > limit_bytes and custom != data.fingerprint:
        raise CustomMetadataTooLarge(
            "the storage plug-in returned too much custom metadata",
            size=len(custom),
            limit=limit_bytes,
        )
    return custom
