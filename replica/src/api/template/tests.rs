use serde_json::json;

use super::*;

fn messages() -> Vec<Value> {
    vec![json!({"role": "user", "content": " Hi <b> "}), json!({"role": "assistant", "content": null})]
}

fn render(source: &str) -> Result<String, Unrenderable> {
    let extra = json!({"enable_thinking": true, "messages": []});
    Template::new(source, "<s>", "</s>").unwrap().render(&messages(), None, true, extra.as_object().unwrap())
}

fn check(source: &str, expected: &str) {
    assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
}

#[test]
fn a_template_sees_the_conversation_and_what_the_request_adds() {
    check("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s> Hi <b> </s>");
    check(
        "{{ messages | length }} {{ enable_thinking }} {{ add_generation_prompt }} {{ tools }}",
        "2 True True None",
    );
    check("{{ missing }}{% if missing is defined %}x{% endif %}{{ missing.x if missing }}", "");
}

/// U045; `tests/chat_templates.rs` compares more with Python.
#[test]
fn blocks_are_trimmed_and_generation_is_nothing() {
    check(
        "{% for m in messages %}\n    {% generation %}\n{{ m.role }}\n    {% endgeneration %}\n{% endfor %}\n",
        "user\nassistant\n",
    );
}

#[test]
fn a_message_the_template_raises_is_the_clients_fault_in_its_words() {
    let refused = render("{{ raise_exception('Only\nuser and ' + messages[1].role) }}").unwrap_err();
    assert_eq!(refused.to_string(), "Only user and assistant");
    let refused = render("{{ messages[0].content + 1 }}").unwrap_err().to_string();
    assert!(refused.contains("in line 1") && !refused.contains('\n'), "{refused}");
}

#[test]
fn a_template_that_is_not_jinja_cannot_be_made() {
    for source in ["{% if %}", "{{ a", "{% for x in %}{% endfor %}", "{% unknown %}"] {
        let refused = Template::new(source, "", "").unwrap_err().to_string();
        assert!(
            refused.starts_with("the chat template cannot be parsed: ") && !refused.contains('\n'),
            "{refused}"
        );
    }
}

#[test]
fn a_template_that_never_ends_is_ended() {
    let refused = render("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
        .unwrap_err();
    assert!(refused.to_string().contains("fuel"), "{refused}");
}
