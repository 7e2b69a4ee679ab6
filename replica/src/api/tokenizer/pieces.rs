//! How tokens are spelled: GPT-2's printable stand-ins for bytes, and SentencePiece's.

/// What a spelling in GPT-2's alphabet stands for. Letters outside the alphabet stand for themselves, as in
/// tokens that somebody added by hand.
pub fn byte_level(spelling: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(spelling.len());
    for letter in spelling.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// What a SentencePiece spelling stands for: `▁` is a space.
pub fn sentence_piece(spelling: &str) -> Vec<u8> {
    spelling.replace('\u{2581}', " ").into_bytes()
}

/// The byte of a spelling such as `<0x0A>`.
pub fn byte_token(spelling: &str) -> Option<u8> {
    let digits = spelling.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// GPT-2 shows printable Latin-1 as itself and moves the other bytes, in order, to U+0100 and on.
pub fn byte_of(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_byte_has_one_stand_in() {
        let bytes: BTreeSet<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        let letters =
            (0..0x200).filter_map(char::from_u32).filter(|&letter| byte_of(letter).is_some()).count();
        assert_eq!((bytes.len(), letters), (256, 256));
        assert_eq!(byte_level("Ġhellò"), b" hell\xf2".to_vec());
        assert_eq!(byte_level("ĊĀł字"), [b"\n\0\xa0".as_slice(), "字".as_bytes()].concat());
    }

    #[test]
    fn byte_tokens_are_two_hexadecimal_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        for other in ["<0x0A", "<0x100>", "<0xG0>", "<0x+1>", "x"] {
            assert_eq!(byte_token(other), None, "{other}");
        }
    }
}
