"""Finding the files of a dataset, and the words when they are not there."""

from __future__ import annotations

import pytest

from mltta.data import DatasetError, layout, load_dataset
from mltta.data.layout import place_images, read_lines
from mltta.errors import ImageError
from mltta.images.decode import load_image
from tests.data.pictures import save_pictures


def test_a_wrong_folder_is_answered_with_the_expected_tree_and_what_is_there(tmp_path):
    (tmp_path / "holidays").mkdir()
    (tmp_path / "holidays" / "beach.jpg").touch()
    with pytest.raises(DatasetError) as error:
        load_dataset("voc2012", tmp_path)
    message = str(error.value)
    assert "VOC2012 was not found in" in message
    assert "VOCdevkit/VOC2012/ImageSets/Main/aeroplane_val.txt" in message
    assert "holidays/: beach.jpg" in message
    assert "extracted" not in message


def test_an_archive_that_is_not_extracted_is_named(tmp_path):
    (tmp_path / "VOCtrainval_11-May-2012.tar").touch()
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "val2017.zip").touch()
    with pytest.raises(DatasetError, match=r"VOCtrainval_11-May-2012\.tar exists but is not extracted"):
        load_dataset("voc2012", tmp_path)
    with pytest.raises(DatasetError, match=r"downloads/val2017\.zip exists but is not extracted"):
        load_dataset("coco2017", tmp_path)
    with pytest.raises(DatasetError, match="is a file, not a folder: extract it and give the folder"):
        load_dataset("voc2012", tmp_path / "VOCtrainval_11-May-2012.tar")


def test_a_folder_that_does_not_exist_or_is_empty_is_said_so(tmp_path):
    with pytest.raises(DatasetError, match=r"no such folder: .*nowhere"):
        load_dataset("nuswide", tmp_path / "nowhere")
    with pytest.raises(DatasetError, match=r"Found there:\n    nothing"):
        load_dataset("nuswide", tmp_path)


def test_a_long_folder_is_listed_in_part(tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02d}.txt").touch()
    with pytest.raises(DatasetError, match=r"11\.txt\n    … and 18 more"):
        load_dataset("coco2014", tmp_path)


def test_images_are_found_by_the_listed_path_then_by_ever_shorter_ends_of_it(tmp_path):
    names = ["images/v1/patch0/a.jpg", "images\\v2\\patch1\\b.jpg"]
    save_pictures(tmp_path / "val", "a.jpg", "b.jpg")
    assert place_images(tmp_path, "toy", [tmp_path / "val"], names) == [
        tmp_path / "val/a.jpg",
        tmp_path / "val/b.jpg",
    ]
    save_pictures(tmp_path / "val", "patch0/a.jpg", "patch1/b.jpg")
    found = place_images(tmp_path, "toy", [tmp_path / "train", tmp_path / "val"], names)
    assert found == [tmp_path / "val/patch0/a.jpg", tmp_path / "val/patch1/b.jpg"]


def test_an_end_that_two_listed_images_share_is_not_used_to_find_them(tmp_path):
    save_pictures(tmp_path, "1.jpg")
    with pytest.raises(DatasetError, match="2 of 2 listed images checked are missing"):
        place_images(tmp_path, "toy", [tmp_path], ["patch0/1.jpg", "patch1/1.jpg"])


def test_a_few_missing_images_are_left_to_the_one_who_opens_them(tmp_path):
    save_pictures(tmp_path, "a.jpg")
    paths = place_images(tmp_path, "toy", [tmp_path], ["a.jpg", "b.jpg"])
    assert load_image(paths[0]).size == (4, 3)
    with pytest.raises(ImageError, match=r"b\.jpg: no such file"):
        load_image(paths[1])


def test_mostly_missing_images_are_an_error_that_names_the_archive(tmp_path):
    save_pictures(tmp_path / "val2017", "a.jpg")
    (tmp_path / "val2017.zip").touch()
    with pytest.raises(DatasetError) as error:
        place_images(tmp_path, "coco-val2017", [tmp_path / "val2017"], ["a.jpg", "b.jpg", "c.jpg"])
    message = str(error.value)
    assert "coco-val2017: 2 of 3 listed images checked are missing" in message
    assert f"such as {tmp_path / 'val2017' / 'b.jpg'}" in message
    assert "val2017.zip exists but is not extracted" in message


def test_a_huge_list_is_opened_by_looking_for_two_hundred_of_its_images(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(layout, "isfile", lambda path: looked.append(path) or True)
    assert len(place_images(tmp_path, "toy", [tmp_path], [f"{i}.jpg" for i in range(83_898)])) == 83_898
    assert 150 < len(looked) <= 200


def test_lines_keep_their_numbers_under_windows_line_ends_and_a_byte_order_mark(tmp_path):
    file = tmp_path / "list.txt"
    file.write_bytes("\ufeffone\r\n\r\n  two \r\n".encode())
    assert read_lines(file) == [(1, "one"), (3, "two")]
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="is not UTF-8 text"):
        read_lines(file)


def test_a_listed_name_longer_than_any_file_can_have_is_missing_like_another(tmp_path):
    save_pictures(tmp_path, "a.jpg")
    paths = place_images(tmp_path, "toy", [tmp_path], ["a.jpg", "x" * 5000 + ".jpg"])
    with pytest.raises(ImageError, match="cannot be opened"):
        load_image(paths[1])
