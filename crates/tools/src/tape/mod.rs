//! The tape: info, search, anchors, handoff, reset.
