"""Holds the JSON of every sample to its JSON Schema: python schema.py PATH/rdmascope. Needs jsonschema (PyPI)."""
import glob
import json
import os
import subprocess
import sys

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))


def ask(*arguments):
    return json.loads(subprocess.run([os.path.abspath(sys.argv[1]), *arguments], check=True, capture_output=True).stdout)


def strict(schema, path=""):
    """Every object says what it has, and allows nothing else."""
    if schema.get("type") == "object" and "properties" in schema:
        assert schema["additionalProperties"] is False and schema["required"], path
        assert all(value.get("description") for value in schema["properties"].values()), path
    for key, value in schema.get("properties", {}).items():
        strict(value, f"{path}.{key}")
    for value in [schema.get("items"), *schema.get("anyOf", []), *schema.get("prefixItems", [])]:
        if isinstance(value, dict):
            strict(value, path + "[]")


def main():
    schema = ask("schema", "analyze")
    jsonschema.Draft202012Validator.check_schema(schema)
    strict(schema)
    validator = jsonschema.Draft202012Validator(schema)
    samples = sorted(glob.glob(os.path.join(HERE, "../../samples/*/*.pcap")))
    assert len(samples) > 10, samples
    for sample in samples:
        report = ask("analyze", "--format", "json", "--exchanges", "--credits", sample)
        for error in validator.iter_errors(report):
            sys.exit(f"{sample}: {error.json_path}: {error.message}")
    broken = ask("analyze", "--format", "json", samples[0])
    broken["more"] = 1
    assert not validator.is_valid(broken), "it allows anything"
    print(f"{len(samples)} reports keep to the schema")


if __name__ == "__main__":
    main()
