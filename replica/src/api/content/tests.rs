use proptest::prelude::*;

use super::*;

fn hermes() -> Calls {
    calls(Form::Hermes)
}

fn calls(form: Form) -> Calls {
    Calls::new(form, vec!["add".to_owned(), "now".to_owned()], false)
}

/// Reads `text` in pieces of `size` letters; ids are left out.
fn read(mut content: Content, text: &str, size: usize) -> (Piece, bool) {
    let mut all = Piece::default();
    let letters: Vec<char> = text.chars().collect();
    for chunk in letters.chunks(size) {
        let mut piece = Piece::default();
        content.push(&chunk.iter().collect::<String>(), &mut piece);
        all.extend(piece);
    }
    let mut piece = Piece::default();
    let is_calls = content.finish(&mut piece);
    all.extend(piece);
    for call in &mut all.calls {
        let (id, _) = call.begin.as_mut().expect("a call begins once");
        assert!(!id.is_empty());
        id.clear();
    }
    (all, is_calls)
}

/// The same for every size of pieces.
fn check(calls: &Calls, text: &str, said: &str, called: &[(&str, &str)], is_calls: bool) {
    for size in [1, 2, 3, 7, 1000] {
        let (piece, ended) = read(Content::new(None, Some(calls.clone())), text, size);
        let got: Vec<_> = piece
            .calls
            .iter()
            .map(|call| (call.begin.as_ref().unwrap().1.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(
            (piece.text.as_str(), got.as_slice(), ended),
            (said, called, is_calls),
            "{text} by {size}"
        );
    }
}

#[test]
fn hermes_calls_stand_between_tags() {
    let one = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"s\": \"}\\\"{\"}}\n</tool_call>";
    check(&hermes(), one, "", &[("add", "{\"a\": 1, \"s\": \"}\\\"{\"}")], true);
    let two =
        format!("Let me see.\n{one}\n<tool_call>\n{{\"name\": \"now\", \"arguments\": {{}}}}\n</tool_call>");
    check(&hermes(), &two, "Let me see.\n", &[("add", "{\"a\": 1, \"s\": \"}\\\"{\"}"), ("now", "{}")], true);
}

#[test]
fn text_that_looks_like_a_marker_is_text() {
    check(&hermes(), "a <tool_cat> b <tool", "a <tool_cat> b <tool", &[], false);
    check(&hermes(), "plain", "plain", &[], false);
    check(&hermes(), "<tool_call>", "<tool_call>", &[], false);
    check(&hermes(), "<tool_call>nonsense", "<tool_call>nonsense", &[], false);
    check(&hermes(), "<tool_call>{\"name\": \"now\"}</tool_call> so", "so", &[("now", "{}")], true);
    let unknown = "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>";
    check(&hermes(), unknown, unknown, &[], false);
}

#[test]
fn llama_and_plain_json_are_the_whole_answer() {
    let json = calls(Form::Json);
    let call = "{\"name\": \"add\", \"parameters\": {\"a\": [1, 2]}}";
    check(&json, call, "", &[("add", "{\"a\": [1, 2]}")], true);
    check(&json, &format!("<|python_tag|>{call}; {call}"), "", &[("add", "{\"a\": [1, 2]}"); 2], true);
    check(&json, &format!("[{call}, {call}]"), "", &[("add", "{\"a\": [1, 2]}"); 2], true);
    check(&json, "{\"answer\": 42}", "{\"answer\": 42}", &[], false);
    check(&json, "{\"name\": \"other\", \"age\": 3}", "{\"name\": \"other\", \"age\": 3}", &[], false);
    check(&json, "It is 5.", "It is 5.", &[], false);
}

#[test]
fn mistral_calls_follow_their_marker() {
    let mistral = calls(Form::Mistral);
    let text = "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"now\", \"arguments\": {}}]";
    check(&mistral, text, "", &[("add", "{\"a\": 1}"), ("now", "{}")], true);
}

#[test]
fn a_named_function_takes_the_whole_answer_as_arguments() {
    let named = calls(Form::Named("add".to_owned()));
    check(&named, "{\"a\": 1}", "", &[("add", "{\"a\": 1}")], true);
    check(&named, "{\"a\": ", "", &[("add", "{\"a\": ")], false);
}

#[test]
fn arguments_may_come_before_the_name_or_not_at_all() {
    let text = "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"add\"}</tool_call>";
    check(&hermes(), text, "", &[("add", "{\"a\": 1}")], true);
    check(&hermes(), "<tool_call>{\"name\": \"now\"}</tool_call>", "", &[("now", "{}")], true);
}

// U038, U039
#[test]
fn a_call_that_is_cut_is_not_a_call() {
    let text = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";
    for end in 0..text.len() {
        let (piece, is_calls) = read(Content::new(None, Some(hermes())), &text[..end], 3);
        let is_whole = piece
            .calls
            .first()
            .is_some_and(|call| serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok());
        assert!(!is_calls || is_whole, "{}", &text[..end]);
    }
    let broken = "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>";
    assert!(!read(Content::new(None, Some(hermes())), broken, 5).1);
}

#[test]
fn only_one_call_is_taken_where_one_is_wanted() {
    let one = Calls::new(Form::Hermes, vec!["now".to_owned()], true);
    let text = "<tool_call>{\"name\": \"now\"}</tool_call><tool_call>{\"name\": \"now\"}</tool_call>";
    check(&one, text, "", &[("now", "{}")], true);
}

#[test]
fn thoughts_are_split_off() {
    for (is_open, text, thought, said) in [
        (false, "<think>\nhm, 2+2\n</think>\n\nfour", "hm, 2+2\n", "four"),
        (true, "hm</think>\nfour", "hm", "four"),
        (true, "\nhm", "hm", ""),
        (false, "four < five", "", "four < five"),
        (false, " <thin", "", " <thin"),
        (false, "a <think>b</think>", "", "a <think>b</think>"),
    ] {
        for size in [1, 2, 5, 100] {
            let (piece, _) = read(Content::new(Some(Thoughts::new(is_open)), None), text, size);
            assert_eq!((piece.thought.as_str(), piece.text.as_str()), (thought, said), "{text} by {size}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_alike_in_any_pieces(text in "(<tool_call>|</tool_call>|<think>|</think>|\\{\"name\": \"now\"|\\}|, \"arguments\": |[a-z \\[\\]{}\":,\n]){0,12}", size in 1usize..9) {
        for form in [Form::Hermes, Form::Mistral, Form::Json, Form::Named("now".to_owned())] {
            let content = || Content::new(Some(Thoughts::new(false)), Some(calls(form.clone())));
            prop_assert_eq!(read(content(), &text, size), read(content(), &text, 1000));
        }
    }
}
