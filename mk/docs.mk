# SPDX-License-Identifier: Apache-2.0
# The documentation site. Its tools are in a separate environment, which make deps does not install.

DOCS_VENV := out/docs/venv

$(DOCS_VENV)/.requirements: uv.lock requirements-uv.txt
	@$(call sync,$(DOCS_VENV),docs)
	@touch $@

# javadoc reads the Java libraries without their dependencies. out/docs/javadoc.log has its warnings
# about that.
JAVADOC ?= javadoc
JAVA_LIBRARIES := client/java/netcraq-streams client/java/netcraq-flink
JAVA_PACKAGES := io.netcraq.streams io.netcraq.flink

# --strict makes broken links, missing headings and pages without a place in the navigation errors.
.PHONY: docs
docs: $(DOCS_VENV)/.requirements $(VENV)/.packages-modules ### build the documentation as a site into out/site
	@rm -rf out/docs/java && $(JAVADOC) -quiet -notimestamp -Xdoclint:none --ignore-source-errors -d out/docs/java \
	  -windowtitle "NetCRAQ for Java" -doctitle "NetCRAQ for Java: streams, and Apache Flink" \
	  -sourcepath "$(shell echo $(JAVA_LIBRARIES:%=%/src/main/java) | tr ' ' :)" $(JAVA_PACKAGES) > out/docs/javadoc.log 2>&1 || \
	  { cat out/docs/javadoc.log; exit 1; }
	@GO="$(GO_ABS)" NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --quiet --strict --clean
	@echo "out/site/index.html"
