"""Products from upstream's records: how each field is read, and errors for bad ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from env_helpers import refusal
from webshop_files import EXTRAS, real_products, record

from creditrl.envs.webshop.product import NO_ATTRIBUTES, Product
from creditrl.errors import DataError


def test_a_record_becomes_a_product_as_upstream_reads_it() -> None:
    assert Product.from_record(record(), EXTRAS["B000000001"]) == Product(
        asin="B000000001",
        title="Steel Desk Lamp",
        description="A lamp of <b>steel</b>.",
        bullets=("Bright. ", "Cold. "),
        category="garden",
        query="desk lamps",
        product_category="Home › Lighting › Lamps",
        prices=(1012.5,),
        price_tag="$1012.5",
        options=(("size", ("small", "large")), ("color", ("red", "blue | grey"))),
        option_images=(("red", "https://example.com/red.jpg"),),
        attributes=("easy clean", "heavy duty", "steel"),
        instruction="Find me heavy duty, easy clean desk lamps",
        instruction_attributes=("heavy duty", "easy clean"),
        image="https://example.com/lamp.jpg",
    )


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("$34.00", (34.0,), "$34.0"),
        ("$9.99 - $19.99", (9.99, 19.99), "$9.99 to $19.99"),
        ("from $5 to $7, once $9", (5.0, 7.0), "$5.0 to $7.0"),
        ("US$1,234,567.80", (1234567.8,), "$1234567.8"),
        ("$٣.٥", (3.5,), "$3.5"),  # digits of any script, like upstream
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
        (..., (100.0,), "$100.0"),
    ],
)
def test_prices_are_parsed(pricing: Any, prices: tuple[float, ...], tag: str) -> None:
    product = Product.from_record(record(pricing=pricing))
    assert (product.prices, product.price_tag) == (prices, tag)


@pytest.mark.parametrize(
    "pricing", ["12.50", "$", "$1.2.3", "$ -", "free", 12.5, ["$3"], "$" + "9" * 400]
)
def test_an_unreadable_price_is_refused_with_product_and_text(pricing: Any) -> None:
    message = refusal(DataError, Product.from_record, record(pricing=pricing))
    assert "product 'B000000001': 'pricing' is " in message and repr(pricing)[:20] in message
    assert "expected dollars such as '$9.99' or '$9.99 - $19.99'" in message
    assert "\n" not in message and len(message) < 250


def test_a_missing_field_is_named() -> None:
    for name in record().keys() - {"asin", "pricing", "average_rating", "page"}:
        message = refusal(DataError, Product.from_record, record(**{name: ...}))
        assert message.startswith(f"product 'B000000001': no field {name!r}; it has '")
        assert message.endswith("'pricing'. Add it, or leave the product out.")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": None}, "'name' is null, expected a text"),
        ({"query": 7}, "'query' is a number (7), expected a text"),
        ({"small_description": 7}, "'small_description' is a number (7), expected a list of texts"),
        ({"small_description": ["a", 7]}, "'small_description' has a number (7) in it"),
        ({"images": None}, "'images' is null, expected a list of texts"),
        ({"customization_options": "Color"}, "is the text ('Color'), expected an object of groups"),
        ({"customization_options": {"Color": "red"}}, "option group 'Color' is the text ('red')"),
        ({"customization_options": {"Color": ["red"]}}, "an option of group 'Color' is the text"),
        ({"customization_options": {"Color": [{}]}}, "option group 'Color': no field 'value'"),
        (
            {"customization_options": {"Color": [{"value": 7}]}},
            "option group 'Color': 'value' is a number (7)",
        ),
        ({"asin": ""}, "its id has 0 characters, expected 1 to 10"),
    ],
)
def test_a_field_of_another_type_is_named(changed: dict[str, Any], says: str) -> None:
    message = refusal(DataError, Product.from_record, record(**changed))
    assert says in message
    assert message.startswith(f"product {changed.get('asin', 'B000000001')!r}")


def test_a_record_must_be_an_object() -> None:
    for entry in (["B000000001"], "B000000001", None):
        with pytest.raises(DataError, match="a product is .*, expected an object with its fields"):
            Product.from_record(entry)
    with pytest.raises(DataError, match="a product: no field 'asin'"):
        Product.from_record(record(asin=...))


def test_odd_options_are_read_as_upstream_reads_them() -> None:
    product = Product.from_record(
        record(
            customization_options={
                "Color": [{"value": "Red"}, {"value": "red"}, {"value": "RED ", "image": "r.jpg"}],
                "Empty": [],
                "None": None,
                # Its lower-case name equals the first group's, and its values replace that group's.
                "color": [{"value": "Green/Black", "image": "g.jpg"}],
            }
        )
    )
    assert product.options == (("color", ("green | black",)), ("empty", ()))
    assert product.option_images == (("red", "r.jpg"), ("green | black", "g.jpg"))
    twice = record(
        customization_options={"Size": [{"value": "S", "image": "a.jpg"}, {"value": "s"}]}
    )
    product = Product.from_record(twice)
    # The last image of a value counts, even if it is empty.
    assert product.options == (("size", ("s", "s")),) and product.option_images == ()
    for nothing in ("", None, {}, []):
        assert Product.from_record(record(customization_options=nothing)).options == ()


def test_single_texts_are_lists_and_the_extras_give_attributes_and_instruction() -> None:
    product = Product.from_record(record(small_description="One text.", images="one.jpg"))
    assert product.bullets == ("One text.",) and product.image == "one.jpg"
    product = Product.from_record(record(small_description=[], images=[]))
    assert product.bullets == () and product.image == ""
    bare = Product.from_record(record())
    assert bare.attributes == NO_ATTRIBUTES == ("DUMMY_ATTR",) and bare.instruction == ""
    assert Product.from_record(record(), {}).attributes == NO_ATTRIBUTES
    # An empty list is not a missing one.
    assert Product.from_record(record(), {"attributes": []}).attributes == ()
    plain = {"attributes": ["a"], "instruction": None, "instruction_attributes": None}
    assert Product.from_record(record(), plain).instruction == ""


@pytest.mark.parametrize(
    ("extras", "says"),
    [
        (["a"], "its entry in the attribute file is a list"),
        ({"attributes": 7}, "'attributes' is a number (7)"),
        ({"instruction": "Find me x"}, "no field 'instruction_attributes'"),
        ({"instruction": "Find me x", "instruction_attributes": []}, "expected at least one"),
        ({"instruction": 7, "instruction_attributes": ["a"]}, "'instruction' is a number (7)"),
    ],
)
def test_bad_extras_are_named(extras: Any, says: str) -> None:
    message = refusal(DataError, Product.from_record, record(), extras)
    assert says in message and "product 'B000000001'" in message


def test_only_characters_that_pages_cannot_show_are_replaced() -> None:
    def read(text: str) -> Product:
        named = "name full_description category query product_category".split()
        fields = {**dict.fromkeys(named, text), "small_description": [text]}
        options = {f"{text}g": [{"value": text}]}
        extras = {"attributes": [text], "instruction": text, "instruction_attributes": [text]}
        return Product.from_record(record(**fields, customization_options=options), extras)

    assert read("a\ud83d\x00b") == read("a?\ufffdb")  # half an emoji, NUL
    odd = "<script>alert(1)</script>\x01\x1b[0m \x85 ½ \ufffe\U0001ffff"
    assert read(odd).title == read(odd).description == odd


def test_the_real_products_are_upstreams(test_data: Path) -> None:
    # The digest is of what upstream's load_products makes of the same two files.
    names = (
        "asin title description bullets category query product_category prices price_tag options "
        "option_images attributes instruction instruction_attributes image"
    ).split()
    products = real_products(test_data)
    fields = [[getattr(product, name) for name in names] for product in products]
    assert len(fields) == 1000 and sum(len(p.prices) == 2 for p in products) == 93
    assert hashlib.sha256(json.dumps(fields).encode()).hexdigest() == (
        "8a49ac50f742620ce94af9797f8429b058771ca69237212b014eb177a973f23e"
    )
