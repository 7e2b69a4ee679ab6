"""Validates manifests on standard input: core kinds by the schemas of kubernetes-validate, others by those in
schemas/, made from their projects' definitions (apiVersion with "/" as "_", then the kind). Prints each kind that
passed; ends with 1 at the first that does not."""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

schemas = pathlib.Path(__file__).parent / "schemas"
for manifest in yaml.safe_load_all(sys.stdin):
    kind = manifest["kind"]
    own = schemas / f"{manifest['apiVersion'].replace('/', '_')}_{kind}.json"
    try:
        if own.exists():
            jsonschema.validate(manifest, json.loads(own.read_text()))
        else:
            kubernetes_validate.validate(manifest, sys.argv[1], strict=True)
    except Exception as error:  # whatever a validator raises, it is a refusal
        message = getattr(error, "message", error)
        sys.exit(f"{kind} {manifest['metadata']['name']}: {message}")
    print(kind)
