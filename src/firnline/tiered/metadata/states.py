"""The legal transitions of a remote segment's state, and of a partition's deletion. PURE.

Source: KIP-405 'Remote Log Metadata State transitions'; spec 3.10, T26; rel-T6, rel-T7.
"""

from firnline.tiered.spi import DeleteState, SegmentState

_SEGMENT: dict[SegmentState | None, tuple[SegmentState, ...]] = {
    None: (SegmentState.COPY_STARTED,),
    SegmentState.COPY_STARTED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.COPY_FINISHED: (SegmentState.DELETE_STARTED,),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_FINISHED,),
    SegmentState.DELETE_FINISHED: (),
}

_DELETE: dict[DeleteState | None, tuple[DeleteState, ...]] = {
    None: (DeleteState.MARKED,),
    DeleteState.MARKED: (DeleteState.STARTED,),
    DeleteState.STARTED: (DeleteState.FINISHED,),
    DeleteState.FINISHED: (),
}


def may_follow(old: SegmentState | None, new: SegmentState) -> bool:
    """Whether a segment may change from `old` (None: unknown) to `new`; a duplicate always may."""
    return old == new or new in _SEGMENT[old]


def may_follow_delete(old: DeleteState | None, new: DeleteState) -> bool:
    """Whether a partition's deletion may change from `old` (None: none) to `new`; a duplicate always may."""
    return old == new or new in _DELETE[old]
