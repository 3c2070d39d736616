#!/bin/sh
# Written by `kakeya-runner install --hook`. GitHub's runner starts it before each job's first command, and ends the
# job where it ends with anything but 0.
# The folder that this starts in, and perhaps some variables, are a workflow's choice. So the program starts with the
# variables that are named here and no others, and the first word is a path, for which no function can stand.
/usr/bin/env -i \
    HOME={home} PATH={path} LC_ALL=C.UTF-8 \
{variables}    {python} -I -m runner --policy {policy} hook
