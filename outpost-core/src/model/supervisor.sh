#!/bin/sh
# placeholder until provider-process brings it
