"""Hand-made files in the form of WebShop's own, for tests."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from creditrl.envs.webshop.product import Product


def record(asin: str = "B000000001", **changed: Any) -> dict[str, Any]:
    """Return a record of ``items_shuffle.json``; a field whose value is ``...`` is left out."""
    fields: dict[str, Any] = {
        "name": "Steel Desk Lamp",
        "full_description": "A lamp of <b>steel</b>.",
        "images": ["https://example.com/lamp.jpg", "https://example.com/back.jpg"],
        "product_category": "Home › Lighting › Lamps",
        "average_rating": "",
        "small_description": ["Bright. ", "Cold. "],
        "customization_options": {
            "Size": [{"value": "Small", "image": None}, {"value": " Large ", "image": None}],
            "Color": [
                {"value": "Red", "image": "https://example.com/red.jpg", "price": 1.5},
                {"value": "Blue/Grey", "image": None},
            ],
            "Style": None,
        },
        "asin": asin,
        "category": "garden",
        "query": " Desk Lamps ",
        "page": 3,
        "pricing": "$1,012.50",
    }
    fields.update(changed)
    return {name: value for name, value in fields.items() if value is not ...}


RECORDS = [
    record("B000000001"),
    record(
        "B000000002",
        name="Wool Rug",
        small_description="Soft.",
        customization_options="",
        pricing="$20.00 - $40.00",
    ),
    record("B000000003", name="Oat Bar", customization_options={}, pricing="$3.99"),
]

LEFT_OUT = [
    record("nan", name="No id"),
    record("B00000000012", name="Long id"),
    record("B000000001", name="The second of its id"),
]
"""Records that upstream's loader passes over, after :data:`RECORDS`."""

EXTRAS = {
    "B000000003": {"attributes": []},
    "B000000001": {
        "attributes": ["easy clean", "heavy duty", "steel"],
        "instruction": "Find me heavy duty, easy clean desk lamps",
        "instruction_attributes": ["heavy duty", "easy clean"],
    },
    "B000000002": {
        "attributes": ["easy clean"],
        "instruction": "Find me easy clean rugs",
        "instruction_attributes": ["easy clean"],
    },
}

HUMAN = {
    "B0ELSEWHERE": [
        {"instruction": "x", "instruction_attributes": ["x"], "instruction_options": []}
    ],
    "B000000003": [
        {"instruction": "a bar", "instruction_attributes": [], "instruction_options": []},
        {
            "instruction": "i want an oat bar without sugar.",
            "instruction_attributes": ["sugar free"],
            "instruction_options": ["pack of 6"],
        },
    ],
    "B000000001": [
        {
            "instruction": "i need a lamp",
            "instruction_attributes": ["heavy duty"],
            "instruction_options": [],
        }
    ],
}


def write_shop(home: Path, *, full: bool = False, **content: Any) -> Path:
    """Write the files of a small (or the full) set; ``products``, ``extras``, ``human`` replace."""
    home.mkdir(parents=True, exist_ok=True)
    ending = ".json" if full else "_1000.json"
    files = {
        f"items_shuffle{ending}": content.get("products", RECORDS),
        f"items_ins_v2{ending}": content.get("extras", EXTRAS),
        "items_human_ins.json": content.get("human", HUMAN),
    }
    for name, data in files.items():
        (home / name).write_text(json.dumps(data))
    return home


def real_file(test_data: Path, name: str) -> Any:
    """Return the content of a compressed file of upstream's 1,000 products."""
    return json.loads(lzma.open(test_data / "webshop" / f"{name}.json.xz").read())


def real_products(test_data: Path, extras: bool = True) -> list[Product]:
    """Return upstream's 1,000 products, with their attributes and instructions if so asked."""
    more = real_file(test_data, "items_ins_v2_1000") if extras else {}
    records = real_file(test_data, "items_shuffle_1000")
    return [Product.from_record(one, more.get(one["asin"])) for one in records]


def real_people(test_data: Path) -> dict[str, Any]:
    """Return the human goals for some of them, by product."""
    path = test_data / "webshop" / "items_human_ins.subset_1000.json"
    people: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return people
