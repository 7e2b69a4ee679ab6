//! Bytes of checkpoints to facts about a model. Pure: bytes in, facts out; callers open the files.

pub mod facts;
