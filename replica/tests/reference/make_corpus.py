"""Writes corpus.json: 200 lines that tokenizers stumble over. Seeded, so it is the same each time.

    python3 make_corpus.py > corpus.json
"""

import json
import random

FIXED = [
    "", " ", "  ", "\n", "\r\n", "\t", "\n\n\n", " \n ", "a", " a", "a ", "  a  ", "\u00a0", "\u3000",
    "Hello, world!", "hello world", "HELLO WORLD", "HeLLo WoRLd", "Hello  world", "Hello\tworld",
    "I'm you're he'll we've they'd it's", "I'M YOU'RE HE'LL WE'VE THEY'D IT'S", "rock 'n' roll",
    "The quick brown fox jumps over the lazy dog.", "don't stop", "''''", "\"quoted\" and 'single'",
    "0", "7", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "0x1F", "1e-9", "-42", "50%",
    "²³¹", "½ ¾", "Ⅷ ⅸ", "٠١٢٣٤٥", "१२३", "𝟘𝟙𝟚",
    "😀", "😀😀😀", "👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☺︎", "🤷🏻‍♀️ shrug", "a😀b", "🫠🪿",
    "é", "e\u0301", "n\u0303o", "a\u0300\u0301\u0302\u0303", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘", "ﬁ ﬂ ﬀ", "Ａｂｃ", "ǅ ǈ",
    "Straße GROẞ", "İstanbul ıI", "Ελληνικά", "Русский текст", "Українська мова", "ქართული", "Հայերեն",
    "العربية", "مرحبا بالعالم", "שלום עולם", "שָׁלוֹם", "\u202eabc\u202c", "אבג abc 123 דהו", "فارسی ‌نیم‌فاصله",
    "中文", "你好，世界！", "漢字かな交じり文", "日本語のテキスト。", "한국어 텍스트", "한글", "𠮷野家", "ภาษาไทย", "ລາວ",
    "हिन्दी", "தமிழ்", "বাংলা", "മലയാളം", "ខ្មែរ", "བོད་ཡིག", "မြန်မာ",
    "\u0000", "a\u0000b", "\u0001\u0002\u0003", "\u001b[31mred\u001b[0m", "\u007f", "\u0085", "\u200b", "\u200d",
    "\ufeff", "a\ufeffb", "\ufffd", "\u2028\u2029", "\ue000", "\U000e0041", "\U0010ffff", "\u0378",
    "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}", "x = [1, 2, 3]\n\n\ny = {}",
    "<html><body class=\"a\">&amp;</body></html>", "SELECT * FROM t WHERE a = 'b' -- c", "\\n \\t \\u0041",
    "https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\Users\\x", "/usr/local/bin", "--flag=value",
    "$E = mc^2$", "\\frac{a}{b}", "a_b_c", "camelCaseWord", "snake_case_word", "SCREAMING_CASE", "kebab-case-word",
    "...", "!!!", "???", "?!?!", "---", "===", "***", "###", "~~~", "```", "////", "((()))", "[[]]", "{{}}", "<<>>",
    ";;;;;;;;;;", "©®™", "€£¥₹", "→←↑↓", "∀∃∈∉", "αβγ", "\u2018a\u2019", "\u201ca\u201d", "a—b–c", "•",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", " <|im_end|> ",
    "<|im_start|><|im_start|>", "<|im_start", "im_start|>", "<|IM_START|>", "a<|im_end|>b", "<|im_end|>\n\n<|im_start|>",
    "<repo_name>x<file_sep>y", "<s>", "</s>", "<unk>", "<bos>", "<eos>", "<pad>", "<0x0A>", "<start_of_turn>user\nHi<end_of_turn>",
    "[INST] x [/INST]", "<think>a</think>", "<unused0>", "▁", "▁▁a", "a▁b", "Ġ", "ĠĠ", "Ċ",
]

PIECES = ["foo", "Bar", "BAZ", "12", "3456", " ", "  ", "\n", "\t", "é", "ß", "ж", "字", "かな", "한", "😀", "👩‍💻", "ا", "ש", "्", "'s", "'LL",
          "!", "...", "/", "_", "-", "<|im_end|>", "<", "|", ">", "\u00a0", "\u200d", "\u0301", "\r\n", "www.", "@", "$", "=", "{", "}", "\u0000"]


def mixed(source, count):
    return "".join(source.choice(PIECES) for _ in range(count))


def main():
    source = random.Random(20240607)
    lines = list(FIXED)
    lines += [" " * 17, " " * 64 + "x", "\n" * 33, "\t" * 9 + "x", " \n" * 20, "a" * 500, "ab" * 300, "z\u0301" * 100, "1" * 400, "字" * 300,
              "=" * 257, "!?" * 130, "word " * 600, "Hello" * 200, "".join(chr(0x4e00 + 7 * i) for i in range(400))]
    while len(lines) < 240:
        lines.append(mixed(source, source.randint(3, 40)))
    lines.append(mixed(source, 4000))
    print(json.dumps(lines, indent=0, ensure_ascii=True))


main()
