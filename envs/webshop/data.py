"""WebShop's own products and goals, and where they come from."""

from __future__ import annotations

from creditrl.envs.data import OfficialData, PlainFile
from creditrl.envs.webshop.official import holds_shop, official_coverage

__all__ = ["DATA"]


def _from_drive(name: str, id: str, size: int, sha256: str) -> PlainFile:
    """Return a file on Google Drive; ``confirm`` skips its question about large files."""
    url = f"https://drive.usercontent.google.com/download?id={id}&export=download&confirm=t"
    return PlainFile(name, url, size, sha256, _NOT_FROM_DRIVE)


_NOT_FROM_DRIVE = (
    "Google Drive refuses a file that many people have fetched that day. A mirror's copy is "
    "checked like the original: --base-url "
    "https://huggingface.co/datasets/YWZBrandon/webshop-data/resolve/main, or another. Or fetch it "
    "with a browser into a folder: --zips FOLDER."
)


def _list_of(name: str, file: str, size: int, sha256: str) -> PlainFile:
    """Return a list of goals in ETO's repository, or in IPR's, whose lists SPA uses."""
    repository = {
        "eto": "Yifan-Song793/ETO/a2fc5da38f8d00cfaf3f9b6370d586eebaf72904",
        "spa_rl": "WeiminXiong/IPR/93335a3a818b46c1d0e081cd76288cf1cbf7dee4",
    }[name]
    url = f"https://raw.githubusercontent.com/{repository}/eval_agent/data/webshop/{file}.json"
    return PlainFile(f"splits/{name}_{file}.json", url, size, sha256)


# Google Drive ids of upstream's setup.sh; sizes and checksums as people who keep copies of the
# files have published them, each at least twice.
_HUMAN_GOALS = _from_drive(
    "items_human_ins.json",
    "14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
    5_137_548,
    "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
)

DATA = OfficialData(
    env="WebShop",
    home="webshop",
    what="WebShop's products and goals: the 1,000-product set, or all 1.18 million",
    source="github.com/princeton-nlp/WebShop",
    licence="MIT; product texts scraped from a shop",
    patterns=("items_*.json", "items_*.json.xz", "items_*.json.gz", "splits/*.json"),
    layout=(
        "items_shuffle_1000.json, items_ins_v2_1000.json: 1,000 products (small)",
        "items_shuffle.json, items_ins_v2.json: 1.18 million products, 5.7 GB (full)",
        "items_human_ins.json: 12,087 goals that people wrote, 13 of them for the small set",
        "splits/*.json: which goals ETO and SPA train and test on (splits)",
    ),
    example="creditrl play WebShop --data official --num-products 1000",
    examples={
        "full": "creditrl play WebShop --data official",
        "splits": "creditrl play WebShop --data official --goals human --splits eto",
    },
    variables=("CREDITRL_WEBSHOP_DATA",),
    holds=holds_shop,
    coverage=official_coverage,
    releases={
        "small": (
            _from_drive(
                "items_shuffle_1000.json",
                "1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
                4_467_013,
                "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
            ),
            _from_drive(
                "items_ins_v2_1000.json",
                "1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
                147_099,
                "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
            ),
            _HUMAN_GOALS,
        ),
        "full": (
            _from_drive(
                "items_shuffle.json",
                "1A2whVgOO0euk5O13n2iYDM0bQRkkRduB",
                5_479_720_229,
                "2ef591d65df3af89e972ab72468eb82cbf124d876552d9f3678667edd620a6c8",
            ),
            _from_drive(
                "items_ins_v2.json",
                "1s2j6NgHljiZzQNL3veZaAiyW_qDEgBNi",
                186_295_270,
                "1d36af476bdb8f82a5da62bd8acdabe54cd8de2fa84010d37da5c4890feb447e",
            ),
            _HUMAN_GOALS,
        ),
        # Which goals papers train and test on; in the order of upstream's human goals.
        "splits": (
            _list_of(
                "eto",
                "train_indices",
                10_796,
                "15f44b4a5ca1e8c2f2a7f2e1849d7ebe1d93e5020426d80408b5f21f0a3a6202",
            ),
            _list_of(
                "eto",
                "test_indices",
                1_223,
                "0e7fa2b9646a8800761a29fe9bdfff757235bdec7597e3211525230434e2ea66",
            ),
            _list_of(
                "eto",
                "test_indices_500",
                3_068,
                "470de709d4e7beef58407e7dc725824b2a6a727f2d0ecf16bc20daa9deaa3587",
            ),
            _list_of(
                "spa_rl",
                "train_indices",
                9_585,
                "a2dff632a2e730830e8398411141004104e00cac5b5329847316514d91fc0dac",
            ),
            _list_of(
                "spa_rl",
                "test_indices",
                1_223,
                "8ccc37a8b89392359d2d124e321b0dd47d6072bf4410847f606762a211a0f189",
            ),
            _list_of(
                "spa_rl",
                "test_indices_500",
                3_068,
                "470de709d4e7beef58407e7dc725824b2a6a727f2d0ecf16bc20daa9deaa3587",
            ),
        ),
    },
)
