use proptest::prelude::*;

use super::*;

fn file(json: &str, data: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), &vec![1; data]].concat()
}

fn parse(bytes: &[u8]) -> Result<Header, Error> {
    Header::parse(bytes, bytes.len() as u64, 3)
}

const GOOD: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
    "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
    "c":{"dtype":"I64","shape":[1],"data_offsets":[16,24]}}"#;

#[test]
fn a_header_says_where_each_tensor_lies() {
    let bytes = file(GOOD, 24);
    let header = parse(&bytes).unwrap();
    let places: Vec<_> =
        header.tensors.iter().map(|t| (t.name.as_str(), t.kind, t.file, t.offset, t.bytes)).collect();
    let data = 8 + GOOD.len() as u64;
    assert_eq!(places, [("a", TensorKind::F32, 3, data, 4), ("b", TensorKind::BF16, 3, data + 4, 12)]);
    assert_eq!(header.unread, [("c".to_owned(), "I64".to_owned())]);
    assert_eq!(header.header_bytes, data);
}

#[test]
fn the_header_alone_is_enough_and_says_how_much_it_needs() {
    let bytes = file(GOOD, 24);
    let needed = |have: usize| match Header::parse(&bytes[..have], bytes.len() as u64, 0) {
        Err(Error::Short { needed }) => Some(needed),
        _ => None,
    };
    let whole = 8 + GOOD.len() as u64;
    assert_eq!((needed(4), needed(8), needed(whole as usize)), (Some(8), Some(whole), None));
}

#[test]
fn damage_is_named() {
    let one = |entry: &str| file(&format!(r#"{{"a":{entry}}}"#), 16);
    let cases = [
        (b"version https://git-lfs.github.com/spec/v1\n".to_vec(), "this is a Git LFS pointer"),
        (vec![0; 100], "the file begins with zeros"),
        (Vec::new(), "the file is empty"),
        (b"PK\x03\x04\x05\x06\x07\x08".to_vec(), "not a safetensors file"),
        (file(GOOD, 24)[..40].to_vec(), "the file is truncated: it has 40 bytes"),
        (file(GOOD, 10), "`b`: the file is truncated: it has"),
        (file("[1]", 0), "the header is not JSON: invalid type: sequence"),
        (one(r#"{"shape":[4],"data_offsets":[0,16]}"#), "`a`: has no dtype"),
        (one(r#"{"dtype":"F32","data_offsets":[0,16]}"#), "`a`: has no shape"),
        (one(r#"{"dtype":"F32","shape":[4],"data_offsets":[0]}"#), "`a`: has no data_offsets"),
        (one(r#"{"dtype":"F32","shape":[4],"data_offsets":[0,15]}"#), "`a`: bytes 0 to 15 do not hold"),
        (one(r#"{"dtype":"F32","shape":[4],"data_offsets":[16,0]}"#), "`a`: bytes 16 to 0 do not hold"),
        (
            one(r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}"#),
            "`a`: bytes 0 to 16",
        ),
        (
            file(
                r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#,
                16,
            ),
            "`b`: shares bytes with `a`",
        ),
    ];
    for (bytes, expected) in cases {
        let found = parse(&bytes).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}\n  instead of {expected}");
    }
}

#[test]
fn an_index_joins_files_and_is_held_to_its_word() {
    let json =
        br#"{"metadata":{},"weight_map":{"x":"2.safetensors","a":"1.safetensors","b":"1.safetensors"}}"#;
    let index = Index::parse(json).unwrap();
    assert_eq!(index.files, ["1.safetensors", "2.safetensors"]);
    assert_eq!(index.tensors["x"], 1);
    let tensor = |name: &str, file| TensorFacts {
        name: name.to_owned(),
        shape: vec![1],
        kind: TensorKind::F32,
        file,
        offset: 8,
        bytes: 4,
    };
    index.check(&[tensor("a", 0), tensor("x", 1)], &[("b".to_owned(), "I64".to_owned())]).unwrap();
    let missing = index.check(&[tensor("a", 0), tensor("b", 0)], &[]).unwrap_err().to_string();
    assert_eq!(missing, "`x`: the index says it is in 2.safetensors, and it is not");
    let elsewhere =
        index.check(&[tensor("a", 0), tensor("b", 1), tensor("x", 1)], &[]).unwrap_err().to_string();
    assert_eq!(elsewhere, "`b`: the index says it is in 1.safetensors, and it is not");
}

#[test]
fn an_index_cannot_lead_out_of_its_folder() {
    for name in ["../secret", "/etc/passwd", "a/b", "", ".."] {
        let json = format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#);
        assert!(Index::parse(json.as_bytes()).is_err(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), longer in 0_u64..100) {
        _ = Header::parse(&bytes, bytes.len() as u64 + longer, 0);
        _ = Index::parse(&bytes);
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = file(GOOD, 24);
        let end = bytes.len();
        for (place, byte) in damage {
            bytes[place % end] = byte;
        }
        if let Ok(header) = parse(&bytes) {
            for tensor in &header.tensors {
                prop_assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
            }
        }
    }
}
