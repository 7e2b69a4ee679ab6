//! Writes JSON straight into bytes: what is the same for every token is written once, and no tree is built for any.

use serde::Serialize;

/// Appends `value` as JSON.
pub fn write(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value)
        .expect("numbers, strings and plain structs serialize, and a vector takes them");
}

/// Appends a number that JSON can hold: log-probabilities of impossible tokens are infinite.
pub fn write_logprob(out: &mut Vec<u8>, logprob: f32) {
    write(out, &logprob.clamp(-9999.0, 0.0));
}

/// Appends items with commas between them.
pub fn write_list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        one(out, item);
    }
    out.push(b']');
}
