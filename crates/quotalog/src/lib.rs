//! What the program and its tests share.
