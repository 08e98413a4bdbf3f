"""The version of this Barnabas: `barnabas --version`, the wheel's metadata and the client's `ApiVersions` software name read it here."""

VERSION = "0.1.0"
