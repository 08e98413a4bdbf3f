"""The secret behind the salts of unknown SCRAM users."""

from __future__ import annotations

from broker.security.credentials.cluster_secret import cluster_secret
from protocol.sasl.scram import ScramMechanism, unknown_user_credential


def test_it_is_the_same_wherever_cluster_and_key_are_the_same() -> None:
    assert cluster_secret("a-cluster", "a-key") == cluster_secret("a-cluster", "a-key")
    assert len(cluster_secret("a-cluster", None)) == 32


def test_it_differs_between_clusters_and_between_keys() -> None:
    secrets = {cluster_secret(cluster_id, key) for cluster_id in ("c1", "c2") for key in (None, "k1", "k2")}

    assert len(secrets) == 6


def test_who_knows_the_cluster_id_alone_cannot_compute_a_salt_where_there_is_a_key() -> None:
    told, guessed = (
        unknown_user_credential(ScramMechanism.SCRAM_SHA_256, "nobody", cluster_secret("c", key)).salt for key in ("secret", None)
    )

    assert told != guessed
